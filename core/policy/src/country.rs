//! Country codes.

use std::{fmt, str::FromStr};

/// Every code that ISO 3166-1 assigns officially, and XK, which common address databases use for Kosovo. Sorted.
const CODES: &[u8] = b"\
    ADAEAFAGAIALAMAOAQARASATAUAWAXAZBABBBDBEBFBGBHBIBJBLBMBNBOBQBRBSBTBVBWBYBZ\
    CACCCDCFCGCHCICKCLCMCNCOCRCUCVCWCXCYCZDEDJDKDMDODZECEEEGEHERESETFIFJFKFMFOFR\
    GAGBGDGEGFGGGHGIGLGMGNGPGQGRGSGTGUGWGYHKHMHNHRHTHUIDIEILIMINIOIQIRISITJEJMJOJP\
    KEKGKHKIKMKNKPKRKWKYKZLALBLCLILKLRLSLTLULVLYMAMCMDMEMFMGMHMKMLMMMNMOMPMQMRMSMTMUMVMWMXMYMZ\
    NANCNENFNGNINLNONPNRNUNZOMPAPEPFPGPHPKPLPMPNPRPSPTPWPYQARERORSRURW\
    SASBSCSDSESGSHSISJSKSLSMSNSOSRSSSTSVSXSYSZTCTDTFTGTHTJTKTLTMTNTOTRTTTVTWTZUAUGUMUSUYUZ\
    VAVCVEVGVIVNVUWFWSXKYEYTZAZMZW";

/// A country: an assigned ISO 3166-1 alpha-2 code, or XK. Written in capitals; parsed in any case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Country([u8; 2]);

/// The text is not a country.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a country: give the two letters of ISO 3166, such as CH or US")]
pub struct CountryError {
    text: String,
}

impl Country {
    /// The two letters, in capitals.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The letters are ASCII: the list has nothing else.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for Country {
    type Err = CountryError;

    fn from_str(text: &str) -> Result<Self, CountryError> {
        let refused = || CountryError { text: text.chars().take(16).collect() };
        let letters: [u8; 2] = text.as_bytes().try_into().map_err(|_| refused())?;
        let code = letters.map(|letter| letter.to_ascii_uppercase());
        let (codes, _) = CODES.as_chunks::<2>();
        codes.binary_search(&code).map(|_| Self(code)).map_err(|_| refused())
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_sorted_and_complete() {
        let (codes, rest) = CODES.as_chunks::<2>();
        assert!(rest.is_empty() && codes.is_sorted_by(|a, b| a < b));
        assert_eq!(codes.len(), 249 + 1, "those that ISO 3166-1 assigns, and XK");
        assert!(codes.as_flattened().iter().all(u8::is_ascii_uppercase));
    }

    #[test]
    fn two_letters_of_a_country_in_any_case_are_one() {
        assert_eq!("ch".parse::<Country>().map(|country| country.to_string()), Ok("CH".to_owned()));
        assert_eq!("Ch".parse::<Country>(), "CH".parse());
        for text in ["", "C", "CHE", "UK", "EU", "ZZ", "T1", "é", "日本", "C H"] {
            let error = text.parse::<Country>().unwrap_err().to_string();
            assert!(error.contains("is not a country: give the two letters"), "{error}");
        }
    }
}
