from swift.megatron.arguments import MegatronSftArguments
from transformers import HfArgumentParser

parser = HfArgumentParser((MegatronSftArguments,))
