//! What the fuzzers try, tried on the stable toolchain.

mod token_corpus;
mod token_fuzz;
