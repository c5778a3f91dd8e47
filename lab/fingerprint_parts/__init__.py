"""Parts of the benchmark of fingerprints: the same model computed in many ways."""
