"""What each number means, in sentences for a caption; no torch is needed to read them."""

PARAMS = "Params: all parameters, trainable and frozen, a shared one once"
MACS = {
    "ctxbench": "MACs: torchprofile's convention, counted by ctxbench on the meta device",
    "torchprofile": "MACs: counted by torchprofile on a real forward pass",
}
MEMORY = (
    "weights (parameters and buffers) counted, input not counted, output kept alive; "
    "train: forward, y.sum().backward(), first step, no earlier gradients; infer: forward under no_grad"
)
PREDICTED_FOR = {"cuda": "CUDA", "cuda-2020": "CUDA under the PyTorch of 2020"}
LATENCY = (
    "Time: ms a pass, median [95 % interval of the median]; infer: eval, inference_mode; "
    "train: forward and y.sum().backward()"
)
RATES = "Rates: batch over time, MACs over time; of matmul: over the rate of a large matrix product in the same run"
