"""`python -m feed_assets` is the command `feed-assets`."""

from feed_assets.cli.main import main

if __name__ == "__main__":
    main(prog_name="feed-assets")
