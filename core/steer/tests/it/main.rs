//! Messages of steering: the corpus of the fuzzer, replayed, and hostile numbers.

mod hostile;
mod message_corpus;
