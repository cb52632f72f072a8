import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--out", default="out")
parser.add_argument("--name", default="")
parser.add_argument("--layers", type=int, nargs="*", default=[])
parser.add_argument("--shuffle", action="store_true")
parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--dry-run", action="store_true")
parser.add_argument("--mode", choices=["fast", "slow"], default="fast")
print(vars(parser.parse_args()))
