#!/usr/bin/env python3
"""zip.py ARCHIVE FILE...: makes a zip archive of files, which has the time of SOURCE_DATE_EPOCH and no owner."""

import os
import pathlib
import sys
import time
import zipfile

FIRST_YEAR = 1980  # of the format


def main(archive, files):
    """Writes the archive."""
    when = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    if when[0] < FIRST_YEAR:
        when = (FIRST_YEAR, 1, 1, 0, 0, 0)
    with zipfile.ZipFile(archive, "w") as out:
        for file in map(pathlib.Path, files):
            entry = zipfile.ZipInfo(file.name, when)
            entry.create_system = 3  # Unix, so that the mode counts
            entry.external_attr = (0o100755 if os.access(file, os.X_OK) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            out.writestr(entry, file.read_bytes(), compresslevel=9)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
