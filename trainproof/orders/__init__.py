"""From the flags of a verb to the work of the trainer; heavy, so a verb imports it when it runs."""
