"""Pack runs into one zip that anyone can verify, and verify such bundles.

`contents` names the files of a bundle, `reading` builds the canonical zip and reads a zip of any origin, `secrets`
finds and masks secrets, `verify` checks and grades, `witnesses` checks signatures, `page` writes REPORT.html and
`build` packs.
"""
