"""The command line as ``python -m primedpca``."""

from primedpca.cli import main

if __name__ == "__main__":
    main()
