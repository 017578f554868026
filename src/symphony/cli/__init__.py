"""The command line. Each subcommand lives in its own module and is imported only when it is used."""
