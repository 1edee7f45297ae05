//! The file of an index: a head, the hashes, and a checksum of both.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `SPHASHES` |
//! | 4 | the version of the format, 1, little-endian |
//! | 4 | the bytes of a hash, 144, little-endian |
//! | 8 | the number of hashes, little-endian |
//! | 144 each | the hashes |
//! | 32 | SHA-256 of all before |

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

use crate::hash::{HASH_BYTES, Hash};

/// The version of the format.
pub const FORMAT_VERSION: u32 = 1;
/// The hashes of an index, at most.
pub const MAX_ROWS: usize = 1 << 24;

const MAGIC: &[u8; 8] = b"SPHASHES";
/// The hashes that are allocated before they are read.
const ALLOCATED_ROWS: usize = 1 << 12;

/// Why a file is no index.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The reader or writer failed.
    #[error(transparent)]
    Io(io::Error),
    /// It does not begin as one.
    #[error("it is no index: `sallyport match build` makes one")]
    NoIndex,
    /// It has another version.
    #[error("it has version {0} of the format, and this program reads version {FORMAT_VERSION}: build it anew")]
    Version(u32),
    /// Its hashes have another length.
    #[error("its hashes have {0} bytes, and not {HASH_BYTES}")]
    HashBytes(u32),
    /// It has too many.
    #[error("there are more than {MAX_ROWS} hashes: split them into several indexes")]
    TooMany,
    /// It ends early.
    #[error("it ends too early: copy it again, or build it anew")]
    Short,
    /// There is more behind its end.
    #[error("it goes on behind its end: copy it again, or build it anew")]
    Long,
    /// It is changed.
    #[error("its checksum is wrong: copy it again, or build it anew")]
    Checksum,
}

/// Writes an index.
///
/// # Errors
/// There are more than [`MAX_ROWS`], or the writer fails.
pub fn write(rows: &[Hash], mut output: impl Write) -> Result<(), FileError> {
    if rows.len() > MAX_ROWS {
        return Err(FileError::TooMany);
    }
    let mut sum = Sha256::new();
    let hash_bytes = u32::try_from(HASH_BYTES).unwrap_or_default();
    let head = [
        MAGIC.as_slice(),
        &FORMAT_VERSION.to_le_bytes(),
        &hash_bytes.to_le_bytes(),
        &(rows.len() as u64).to_le_bytes(),
    ]
    .concat();
    for part in std::iter::once(head.as_slice()).chain(rows.iter().map(<[u8; HASH_BYTES]>::as_slice)) {
        sum.update(part);
        output.write_all(part).map_err(FileError::Io)?;
    }
    output.write_all(&sum.finalize()).map_err(FileError::Io)?;
    output.flush().map_err(FileError::Io)
}

/// Reads an index. Nothing is allocated for hashes that the file only promises.
///
/// # Errors
/// The file is no whole index of this version.
pub fn read(mut input: impl Read) -> Result<Vec<Hash>, FileError> {
    let mut sum = Sha256::new();
    let magic: [u8; 8] = part(&mut input, &mut sum).map_err(|error| match error {
        FileError::Short => FileError::NoIndex,
        other => other,
    })?;
    if &magic != MAGIC {
        return Err(FileError::NoIndex);
    }
    let version = u32::from_le_bytes(part(&mut input, &mut sum)?);
    if version != FORMAT_VERSION {
        return Err(FileError::Version(version));
    }
    let hash_bytes = u32::from_le_bytes(part(&mut input, &mut sum)?);
    if usize::try_from(hash_bytes) != Ok(HASH_BYTES) {
        return Err(FileError::HashBytes(hash_bytes));
    }
    let count = u64::from_le_bytes(part(&mut input, &mut sum)?);
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_ROWS).ok_or(FileError::TooMany)?;
    let mut rows: Vec<Hash> = Vec::with_capacity(count.min(ALLOCATED_ROWS));
    for _ in 0..count {
        rows.push(part(&mut input, &mut sum)?);
    }
    let computed = sum.finalize();
    let stored: [u8; 32] = part(&mut input, &mut Sha256::new())?;
    if computed.as_slice() != stored {
        return Err(FileError::Checksum);
    }
    match input.read(&mut [0]).map_err(FileError::Io)? {
        0 => Ok(rows),
        _ => Err(FileError::Long),
    }
}

/// The next bytes, added to the checksum.
fn part<const N: usize>(input: &mut impl Read, sum: &mut Sha256) -> Result<[u8; N], FileError> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => FileError::Short,
        _ => FileError::Io(error),
    })?;
    sum.update(bytes);
    Ok(bytes)
}
