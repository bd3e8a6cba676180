"""Limits that several modules share: the largest sizes of input, and ranges of sampling parameters.

Sizes bound the memory and time that a hostile file or stream can cost. A limit that only one module
has is in that module.
"""

MAX_VOCAB = 1 << 21  # tokens
MAX_TEXT_BYTES = 16 << 20  # of one text; tokenizing needs up to 150 times as much, without spaces
MAX_CAPACITY = 1 << 22  # tokens in a KV cache
MAX_CONTEXT = 1 << 24  # tokens a model may claim to have been trained with
MAX_VOCAB_FILE_BYTES = 64 << 20  # tokenizer.bin, tokenizer.json, tokenizer.model
MAX_SHARDS = 512  # files of one model: descriptors and maps; the largest models known have 50

# of a model's hyperparameters
MAX_LAYERS = 512
MAX_WIDTH = 1 << 20  # of activations
MAX_HEADS = 4096
MAX_HEAD_DIM = 1024
MAX_CONV = 16  # taps of a convolution over tokens

# of the sampler's arguments: (minimum, maximum), both included; None: any finite number
TEMPERATURE = 0, None
TOP_K = 0, MAX_VOCAB
TOP_P = 0, 1
MIN_P = 0, 1
TYPICAL_P = 0, 1
TOP_N_SIGMA = -1, 1000
XTC_PROBABILITY = 0, 1
XTC_THRESHOLD = 0, 1
DYNATEMP_RANGE = 0, 1000
DYNATEMP_EXPONENT = 0, 100
REPEAT_PENALTY = 0.01, 100
PRESENCE_PENALTY = -1000, 1000
FREQUENCY_PENALTY = -1000, 1000
LAST_N = 0, 1 << 20
DRY_MULTIPLIER = 0, 1000
DRY_BASE = 1, 100
DRY_ALLOWED_LENGTH = 1, 1 << 20
DRY_LAST_N = -1, 1 << 20  # the time of a step is linear in it: 128 Ki tokens take about 1 ms
MAX_BREAKERS = 64  # sequence breakers of DRY
MAX_BREAKER_BYTES = 40
MIROSTAT = 0, 2
MIROSTAT_ENTROPY = 0, 100
MIROSTAT_RATE = 0, 100
MIROSTAT_MU = -1e6, 1e6
SEED = 0, (1 << 64) - 1
MAX_BIAS = 1e6  # a bias is from -MAX_BIAS to MAX_BIAS, or -inf
