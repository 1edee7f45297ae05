//! Filters of `core/hashmatch` by the vector and tile instructions of a processor.
//!
//! [`fastest`] takes the best that this processor has of AMX, AVX-512 VNNI, AVX2, and scalar code. All find the same
//! matches. [`columns()`] is the way of an article, to compare with.
//!
//! `unsafe` code is in `amx`, `avx2`, `columns` and `vnni` only, and each place says why it is sound:
//! docs/adr/0095-vector-instructions.md.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod columns;
#[cfg(target_arch = "x86_64")]
mod vnni;

use sallyport_hashmatch::{Filter, Hash, Scalar};

/// The ways to compare hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instructions {
    /// Tiles of AMX, with sums of bytes.
    Amx,
    /// Vectors of 512 bits, with sums of bytes.
    Vnni,
    /// Vectors of 256 bits.
    Avx2,
    /// No special instructions.
    Scalar,
}

impl Instructions {
    /// All of them, the fastest first.
    pub const ALL: [Self; 4] = [Self::Amx, Self::Vnni, Self::Avx2, Self::Scalar];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amx => "amx",
            Self::Vnni => "vnni",
            Self::Avx2 => "avx2",
            Self::Scalar => "scalar",
        }
    }

    /// The filter of these rows; `None` if the processor lacks the instructions, or the kernel does not permit them.
    #[must_use]
    pub fn filter(self, rows: &[Hash]) -> Option<Box<dyn Filter>> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Amx => Some(Box::new(amx::Amx::new(rows)?)),
            #[cfg(target_arch = "x86_64")]
            Self::Vnni => Some(Box::new(vnni::Vnni::new(rows)?)),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Some(Box::new(avx2::Avx2::new(rows)?)),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Amx | Self::Vnni | Self::Avx2 => None,
            Self::Scalar => Some(Box::new(Scalar::new(rows))),
        }
    }
}

/// The fastest filter that this processor has.
#[must_use]
pub fn fastest(rows: &[Hash]) -> Box<dyn Filter> {
    let mut filters = Instructions::ALL.into_iter().filter_map(|instructions| instructions.filter(rows));
    filters.next().unwrap_or_else(|| Box::new(Scalar::new(rows)))
}

/// The filter of an article, by columns of bytes; `None` if the processor lacks AVX2. It compares 32 bytes of a hash.
#[must_use]
pub fn columns(rows: &[Hash]) -> Option<Box<dyn Filter>> {
    #[cfg(target_arch = "x86_64")]
    return Some(Box::new(columns::Columns::new(rows)?));
    #[cfg(not(target_arch = "x86_64"))]
    return None;
}
