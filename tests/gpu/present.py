"""Exits 0 where torch can use a CUDA GPU; else prints the one reason why not and exits 1."""
import ctypes
import sys


def reason() -> str:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver on this machine (libcuda.so.1)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "a CUDA driver is here, but no GPU that it can use"
    import torch  # late: it takes seconds, and mostly there is no driver

    if not torch.cuda.is_available():
        return f"a GPU is here, but torch {torch.__version__} has no CUDA"
    return ""


if __name__ == "__main__":
    why = reason()
    if why:
        print(why)
    sys.exit(bool(why))
