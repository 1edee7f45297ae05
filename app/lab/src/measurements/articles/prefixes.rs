//! `prefixes`: what a cloud holds, counted from a made sample in the shapes of the files that clouds and registries
//! publish.

use std::time::Instant;

use sallyport_prefixes::{Named, ReadOptions, Report, read};

use crate::measurements::{
    Scale,
    frame::{Claim, Column, Design, Measurement, Place, RunError},
};

/// The sample. The first file is of ranges that a cloud publishes as in use.
const FILES: [(&str, &[u8]); 4] = [
    ("ip-ranges.json", include_bytes!("../../../../../core/prefixes/tests/data/ip-ranges.json")),
    ("rdap-arin.json", include_bytes!("../../../../../core/prefixes/tests/data/rdap-arin.json")),
    ("rdap-ripencc.json", include_bytes!("../../../../../core/prefixes/tests/data/rdap-ripencc.json")),
    ("rdap-apnic.json", include_bytes!("../../../../../core/prefixes/tests/data/rdap-apnic.json")),
];
/// The first address of the sample, which is of 240.0.0.0/4.
const FIRST_ADDRESS: u32 = 0xf000_0000;
const WORDS: usize = (u32::MAX - FIRST_ADDRESS) as usize / 64 + 1;

/// How each variant counts.
#[derive(Debug, Clone, Copy)]
enum Way {
    FilesAddedUp,
    Ours,
    OneBitEach,
    InUse,
}

const ADDED_UP: &str = "files, added up";
const OURS: &str = "files, each address once";
const ONE_BIT: &str = "the same by one bit for each address";
const IN_USE: &str = "of these, published as in use";
const VARIANTS: [(&str, Way); 4] =
    [(ADDED_UP, Way::FilesAddedUp), (OURS, Way::Ours), (ONE_BIT, Way::OneBitEach), (IN_USE, Way::InUse)];

/// The measurement.
#[derive(Debug)]
pub(in crate::measurements) struct Prefixes {
    rounds: u32,
}

impl Prefixes {
    /// Chooses the number of rounds; the sample is the same.
    pub(in crate::measurements) fn new(scale: Scale) -> Self {
        Self { rounds: if scale == Scale::Full { 3 } else { 1 } }
    }
}

const fn addresses(variant: &'static str) -> Place {
    Place { variant, column: "addresses" }
}

impl Measurement for Prefixes {
    fn design(&self) -> Design {
        let column = |name, unit| Column { name, unit };
        let claim = |sentence, figure, by, bounds| Claim::within(sentence, addresses(figure), addresses(by), bounds);
        Design {
            columns: vec![column("addresses", ""), column("blocks", ""), column("time", "ms")],
            variants: VARIANTS.map(|(name, _)| name.to_owned()).to_vec(),
            claims: vec![
                claim("each address counts once", OURS, ONE_BIT, (1.0, 1.0)),
                claim("files name addresses again", ADDED_UP, OURS, (1.05, f64::INFINITY)),
                claim("about half of what is held is published as in use", IN_USE, OURS, (0.5, 0.55)),
            ],
            rounds: self.rounds,
        }
    }

    fn run(&mut self, variant: usize) -> Result<Vec<f64>, RunError> {
        let began = Instant::now();
        let sources = FILES.into_iter().map(source).collect::<Result<Vec<_>, _>>()?;
        let (count, blocks) = match VARIANTS[variant].1 {
            Way::OneBitEach => (one_bit_each(&sources)?, 0),
            way => counted(&sources, way)?,
        };
        Ok(vec![count as f64, blocks as f64, began.elapsed().as_secs_f64() * 1e3])
    }
}

fn source((name, bytes): (&str, &[u8])) -> Result<Named, RunError> {
    let source = read(bytes, &ReadOptions::default());
    let source = source.map_err(|error| RunError::Unfit(format!("the sample {name} cannot be read: {error}")))?;
    Ok(Named { name: name.to_owned(), source })
}

/// The addresses and blocks by `core/prefixes`.
fn counted(sources: &[Named], way: Way) -> Result<(u64, u64), RunError> {
    let report = Report::new(sources, sources.first().map(|file| &file.source.set), None, None);
    let family = report.ipv4.ok_or_else(|| RunError::Unfit("the sample has no IPv4 addresses".to_owned()))?;
    Ok(match way {
        Way::FilesAddedUp => {
            let sums = report.files.iter().map(|file| (file.ipv4_addresses, file.listed));
            sums.fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1))
        }
        Way::InUse => (family.used.map_or(0, |used| used.inside), report.files[0].listed),
        Way::Ours | Way::OneBitEach => (family.held, family.prefixes),
    })
}

/// The addresses, by a bit for each of 240.0.0.0/4: a way that cannot count one twice.
fn one_bit_each(sources: &[Named]) -> Result<u64, RunError> {
    let mut words = vec![0_u64; WORDS];
    for (first, last) in sources.iter().flat_map(|file| file.source.set.v4.ranges()) {
        let place = |address: u32| {
            let place = address.checked_sub(FIRST_ADDRESS).map(|place| place as usize);
            place.ok_or_else(|| RunError::Unfit("the sample has an address outside of 240.0.0.0/4".to_owned()))
        };
        set_bits(&mut words, place(*first)?, place(*last)?);
    }
    Ok(words.iter().map(|word| u64::from(word.count_ones())).sum())
}

/// Sets the bits from the first place to the last one.
fn set_bits(words: &mut [u64], first: usize, last: usize) {
    let mut at = first;
    while at <= last {
        if at.is_multiple_of(64) && at + 63 <= last {
            words[at / 64] = u64::MAX;
            at += 64;
        } else {
            words[at / 64] |= 1 << (at % 64);
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_ranges_that_overlap_are_set_once() {
        let mut words = vec![0; 4];
        for (first, last) in [(3, 3), (60, 200), (64, 127), (190, 255)] {
            set_bits(&mut words, first, last);
        }
        assert_eq!(words, [1 << 3 | 0xf << 60, u64::MAX, u64::MAX, u64::MAX]);
    }
}
