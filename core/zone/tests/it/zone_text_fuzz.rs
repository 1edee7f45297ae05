//! What the fuzzer does with its bytes: they are the text of a zone, as its owner writes it. It also lives in `fuzz/`.

use sallyport_zone::{
    Name, Zone,
    record::{parse_master_file, parse_record},
};

/// The text is a master file, and the first line is a type with the data of one record. What is read is shown and read
/// as the same, and a zone that is made of it shows its records in the same way.
pub(crate) fn zone_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (apex, other): (Name, Name) = ("z.test".parse().unwrap(), "other.test".parse().unwrap());
    if let Some((rtype, value)) = text.lines().next().and_then(|line| line.split_once(' '))
        && let Ok(record) = parse_record(&apex, 60, rtype, value, &apex)
    {
        assert_eq!(parse_master_file(&record.to_string(), &other).unwrap(), [record]);
    }
    let Ok(records) = parse_master_file(text, &apex) else { return };
    let shown: String = records.iter().map(|record| format!("{record}\n")).collect();
    assert_eq!(parse_master_file(&shown, &other).unwrap(), records);
    if let Ok(zone) = Zone::from_master_file(apex.clone(), text, None) {
        let records = zone.records();
        let again = Zone::build(apex, records.clone(), None).unwrap();
        assert_eq!(again.records(), records);
    }
}
