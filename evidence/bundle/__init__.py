"""The bundle: chosen runs in one plain zip that anyone can verify.

Reading order: `layout` (what is inside, under which names); `build` (folders to zip) with `inspection`, `secrets`,
`report` and `documents`; `verify` (zip to verdict) with `archive` and `content` (a strict zip reader) and `hostile`
(what is refused before anything is written). `rules` explains every TP8xx code. Nothing here trains or draws pages.
"""
