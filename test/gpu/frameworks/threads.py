"""Four threads that launch at the same time, each on its own stream."""
import threading

import torch
from digest import print_digest

results = [None] * 4


def work(number: int) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.linspace(0, number + 1, 5001, device="cuda")
        for _ in range(100):
            x = torch.sin(x) * 1.5 + 0.1
        results[number] = x.cpu()


def main() -> None:
    torch.cuda.init()
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print_digest("threads", *results)


main()
