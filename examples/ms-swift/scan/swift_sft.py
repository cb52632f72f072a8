from swift.arguments import SftArguments
from transformers import HfArgumentParser

parser = HfArgumentParser((SftArguments,))
