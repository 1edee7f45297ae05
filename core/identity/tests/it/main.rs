//! The fuzz targets' bodies, run on the stable toolchain.

mod token_corpus;
mod token_fuzz;
