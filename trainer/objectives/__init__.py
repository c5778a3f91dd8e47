"""What training makes small: the losses. Now cross-entropy; further objectives get a file each."""
