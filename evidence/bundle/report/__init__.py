"""The readable page in a bundle, `REPORT.html`, and its description as an RO-Crate."""
