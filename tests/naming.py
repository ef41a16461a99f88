"""How the parameters of tests are named."""


def short(value: object) -> str:
    """A URI by what follows its #, anything else as it is."""
    return str(value).rpartition("#")[2] or str(value)
