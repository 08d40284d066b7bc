"""An engine that keeps no record: who is started again charges again."""

from concurrent.futures import ThreadPoolExecutor

from benchmarks.duplicates import paying

if __name__ == "__main__":
    work = paying.work()
    with ThreadPoolExecutor(len(work.orders)) as pool:
        charged = list(pool.map(lambda order: paying.charge(work.port, order), work.orders))
    paying.report(finished=len(charged), in_doubt=0)
