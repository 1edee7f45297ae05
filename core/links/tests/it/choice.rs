//! What the user may write.

use sallyport_links_model::{LinkChoice, LinkSpec, Properties, Selector};

#[test]
fn a_link_has_a_device_or_an_address_and_properties() {
    let choice = LinkChoice::parse(&["eth0", "wwan0,metered,weight=2,standby", "::ffff:10.0.0.2"]).unwrap();
    let device = |name: &str| Selector::Device(name.to_owned());
    let expected = [
        (device("eth0"), Properties::default()),
        (device("wwan0"), Properties { weight: 2, is_standby: true, is_metered: true }),
        (Selector::Address("10.0.0.2".parse().unwrap()), Properties::default()),
    ];
    let expected = expected.map(|(selector, properties)| LinkSpec { selector, properties });
    assert_eq!(choice, LinkChoice::Listed(expected.to_vec()));
    assert_eq!(LinkChoice::parse(&["auto"]), Ok(LinkChoice::Auto));
}

#[test]
fn wrong_texts_are_refused_with_the_reason() {
    let many: Vec<String> = (0..17).map(|number| format!("eth{number}")).collect();
    assert_eq!(LinkChoice::parse(&many).unwrap_err().to_string(), "more than 16 links are named");
    let cases: [(&[&str], &str); 12] = [
        (&[], "no link is named"),
        (&[""], "no link is named"),
        (&[",metered"], "no link is named"),
        (&["a-name-of-16-byt"], "\"a-name-of-16-byt\" is neither a device nor an address"),
        (&["../eth0"], "\"../eth0\" is neither"),
        (&["0.0.0.0"], "\"0.0.0.0\" is neither"),
        (&["eth0,"], "\"\" is no property of a link: expected metered, standby or weight=N"),
        (&["eth0,weight=0"], "\"0\" is no weight: expected a number from 1 to 1000"),
        (&["eth0,weight=1001"], "\"1001\" is no weight"),
        (&["eth0", "eth0,metered"], "the link eth0 is named twice"),
        (&["auto", "eth0"], "auto takes every link"),
        (&["auto,metered"], "auto takes every link"),
    ];
    for (texts, expected) in cases {
        let error = LinkChoice::parse(texts).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{texts:?}: {error}");
    }
}
