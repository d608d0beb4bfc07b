"""joblib: inferences in threads, and in processes of loky."""
import joblib
from _real import digest, mlp, out, rows, torch


def infer(model, i):
    torch.set_num_threads(2)
    with torch.no_grad():
        return digest(model(rows(i)))


if __name__ == "__main__":
    net = mlp()
    out("threads", joblib.Parallel(2, backend="threading")(joblib.delayed(infer)(net, i) for i in range(6)))
    joblib.dump(net.state_dict(), "net.joblib")
    net.load_state_dict(joblib.load("net.joblib"))
    out("loaded", net(rows()))
