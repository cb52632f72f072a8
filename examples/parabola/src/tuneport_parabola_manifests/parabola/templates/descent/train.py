import argparse

import tuneport_report as report

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

x = 4.0
for step in range(1, args.steps + 1):
    x -= args.rate * 2 * x
    report.log({"train/loss": x * x}, step=step)
print(f"x = {x:.4f}")
