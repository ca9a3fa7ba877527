import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Paceline(CMakePackage):
    """Exact, fast rollouts for LLM reinforcement learning on HPC clusters: one MPI program that
    generates responses by speculative decoding and writes them to HDF5."""

    # The checkout that this file is in.
    git = "file://" + os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 5))

    license("Apache-2.0")

    version("main", branch="main")

    variant("cuda", default=False, description="the CUDA backend, for devices from sm_80 on")
    variant("python", default=True, description="what the reader of trajectories needs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("ucx@1.12:")
    depends_on("hdf5@1.10:~mpi")
    depends_on("xxhash")
    depends_on("yaml-cpp@0.7:")
    depends_on("nlohmann-json@3.10:")
    depends_on("cli11@2:")
    depends_on("fmt@9:")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("libjpeg-turbo")
    depends_on("libpng")
    depends_on("libwebp +libwebpdemux")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+cuda")
    depends_on("python@3.9:", type="run", when="+python")
    depends_on("py-numpy", type="run", when="+python")
    depends_on("py-h5py~mpi", type="run", when="+python")

    conflicts("%gcc@:11", msg="paceline is C++20, as of GCC 12")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("BUILD_TESTING", False),
            self.define("PACELINE_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
        ]

    def setup_run_environment(self, env):
        env.prepend_path("PYTHONPATH", self.prefix.share.paceline.python)
        env.set("PACELINE_SHARE", self.prefix.share.paceline)
