from swift.arguments import RLHFArguments
from transformers import HfArgumentParser

parser = HfArgumentParser((RLHFArguments,))
