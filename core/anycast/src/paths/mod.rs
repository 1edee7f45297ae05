//! Paths: which way other networks take to a prefix, and why.
