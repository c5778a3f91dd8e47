"""What is written down: the folder (`recorder`), the code, the machine, the first manifest.

What ran is read back from the built program by `trainer/loop/effective.py`.
"""
