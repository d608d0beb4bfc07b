"""The nine networks of the Masa paper (its Table 1), layer by layer, by their published shapes: bytes of weights and
activations, and computing by arithmetic. Pooling, norms and activations go with the layer before them.

A layer's activations are its input and its output; GoogLeNet's and Darknet's layers are in the order of a chain, an inception
module is one layer. Computing takes flops / rate, or reading the weights from memory where that is more (dense layers)."""

FLOPS_PER_S = 8e9     # of one worker: AgeNet then takes the 0.2 to 0.3 s that EdgeCaffe's profile has
MEMORY_PER_S = 4e9    # bytes of weights that a dense layer goes through
HEAD = "network,dense,load_bytes,compute_ns,activation_bytes,output_bytes,peak_bytes"
MB = 1000 * 1000
# Masa's own profile of whole networks, in MB: what its code reserves (Table 1, memory usage).
PEAK_MB = {"agenet": 183, "gendernet": 186, "facenet": 875, "sos": 875, "googlenet": 404, "tinyyolo": 263,
           "emotionnet": 761, "memnet": 880, "scenenet": 892}


def conv(inputs, outputs, kernel, before, after, groups=1, side=None):
    """before, after: side of the input; of the output once it is pooled. side: of the output before that."""
    side = side or after
    weights = inputs // groups * outputs * kernel * kernel + outputs
    return (0, 4 * weights, 2 * weights * side * side,
            4 * (inputs * before * before + outputs * side * side), 4 * outputs * after * after)


def dense(inputs, outputs):
    weights = inputs * outputs + outputs
    return 1, 4 * weights, 2 * weights, 4 * (inputs + outputs), 4 * outputs


def levi(classes):
    return [conv(3, 96, 7, 227, 28, side=56), conv(96, 256, 5, 28, 14, side=28), conv(256, 384, 3, 14, 7, side=14),
            dense(384 * 49, 512), dense(512, 512), dense(512, classes)]


def alexnet(classes):
    return [conv(3, 96, 11, 227, 27, side=55), conv(96, 256, 5, 27, 13, groups=2, side=27), conv(256, 384, 3, 13, 13),
            conv(384, 384, 3, 13, 13, groups=2), conv(384, 256, 3, 13, 6, groups=2, side=13),
            dense(9216, 4096), dense(4096, 4096), dense(4096, classes)]


def vgg_s(classes):
    return [conv(3, 96, 7, 224, 37, side=109), conv(96, 256, 5, 37, 17, side=33), conv(256, 512, 3, 17, 17),
            conv(512, 512, 3, 17, 17), conv(512, 512, 3, 17, 6, side=17),
            dense(512 * 36, 4096), dense(4096, 4096), dense(4096, classes)]


def tiny_yolo():
    sides, layers, inputs = [416, 208, 104, 52, 26, 13, 13], [], 3
    for number, outputs in enumerate((16, 32, 64, 128, 256, 512)):
        layers.append(conv(inputs, outputs, 3, sides[number], sides[number + 1], side=sides[number]))
        inputs = outputs
    return layers + [conv(512, 1024, 3, 13, 13), conv(1024, 1024, 3, 13, 13), conv(1024, 125, 1, 13, 13)]


def inception(inputs, side, one, reduce3, three, reduce5, five, pool, pooled=None):
    weights = inputs * (one + reduce3 + reduce5 + pool) + 9 * reduce3 * three + 25 * reduce5 * five
    outputs = one + three + five + pool
    return (0, 4 * weights, 2 * weights * side * side, 4 * (inputs + reduce3 + reduce5 + outputs) * side * side,
            4 * outputs * (pooled or side) ** 2)


def googlenet(classes):
    return [conv(3, 64, 7, 224, 56, side=112), conv(64, 64, 1, 56, 56), conv(64, 192, 3, 56, 28, side=56),
            inception(192, 28, 64, 96, 128, 16, 32, 32), inception(256, 28, 128, 128, 192, 32, 96, 64, 14),
            inception(480, 14, 192, 96, 208, 16, 48, 64), inception(512, 14, 160, 112, 224, 24, 64, 64),
            inception(512, 14, 128, 128, 256, 24, 64, 64), inception(512, 14, 112, 144, 288, 32, 64, 64),
            inception(528, 14, 256, 160, 320, 32, 128, 128, 7), inception(832, 7, 256, 160, 320, 32, 128, 128),
            inception(832, 7, 384, 192, 384, 48, 128, 128, 1), dense(1024, classes)]


NETWORKS = {"agenet": levi(8), "gendernet": levi(2), "facenet": alexnet(2), "sos": alexnet(5),
            "googlenet": googlenet(2), "tinyyolo": tiny_yolo(), "emotionnet": vgg_s(7), "memnet": alexnet(1),
            "scenenet": alexnet(205)}


def rows(names):
    """Lines of the table that swapnet-sched-sim reads."""
    yield HEAD
    for name in names:
        layers = NETWORKS[name]
        for index, (is_dense, weights, flops, activations, output) in enumerate(layers):
            seconds = max(flops / FLOPS_PER_S, is_dense * weights / MEMORY_PER_S)
            kept = min(output, activations) if index + 1 < len(layers) else 0
            yield f"{name},{is_dense},{weights},{round(seconds * 1e9)},{activations},{kept},{PEAK_MB[name] * MB}"


def weight_bytes(names):
    return sum(layer[1] for name in names for layer in NETWORKS[name])


def largest(names, inputs=1):
    """What the layer needs that needs most, beside the output of the layer before it."""
    most = 0
    for name in names:
        before = 0
        for _, weights, _, activations, output in NETWORKS[name]:
            most = max(most, weights + inputs * max(activations, before))
            before = output
    return most
