"""skorch and scikit-learn: fit, predict."""
from _real import mlp, nn, np, out, rows, torch
from skorch import NeuralNetClassifier

net = NeuralNetClassifier(nn.Sequential(mlp(depth=6), nn.Linear(1024, 3)), max_epochs=2, lr=0.01, criterion=nn.CrossEntropyLoss, verbose=0,
                          train_split=None, iterator_train__shuffle=False)
x = rows(count=32).numpy()
net.fit(x, np.arange(32) % 3)
out("predicted", net.predict_proba(x))
