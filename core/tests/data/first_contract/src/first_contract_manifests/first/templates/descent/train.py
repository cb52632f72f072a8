import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--model", default="")
parser.add_argument("--processes", type=int, default=1)
print(parser.parse_args())
