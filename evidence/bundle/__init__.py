"""Pack runs into one zip that anyone can verify, and verify such bundles.

`contents` names the files of a bundle, `container` writes the canonical zip, `reading` reads a zip of any origin,
`secrets` finds and masks secrets, `verify` checks and grades, `page` writes REPORT.html and `build` packs.
"""
