# Sources of the GPU part; also read by test/cuda when it is built by itself.
set(ry_cuda_sources
    host/driver.c
    host/ep_gpu.c
    host/fabric.c
    host/fabric_agent.c
    host/fabric_proxy.c
    ht_combine.cu
    ht_dispatch.cu
    ht_plan.cu
    kernels.cu
    host/layout.c
    ll_combine.cu
    ll_dispatch.cu
    mover.cu
    nic_engine.cu
)
