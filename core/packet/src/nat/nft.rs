//! The same NAT as rules of the kernel's nftables, for what goes by the kernel.

use std::{fmt::Write as _, net::Ipv4Addr};

use super::NatConfig;
use crate::parse::TCP;

/// The table that the rules are in. Nobody else writes it.
pub const NAT_TABLE: &str = "sallyport_nat";
/// The most inside addresses whose sessions the kernel counts.
const MAX_USERS: usize = 65_536;

/// The script that removes the table, if it is there.
#[must_use]
pub fn nft_removal() -> String {
    format!("table ip {NAT_TABLE}\ndelete table ip {NAT_TABLE}\n")
}

/// The script that sets the whole table at once, in place of the one before.
///
/// The kernel chooses the ports of its mappings itself. It keeps the port of the inside where that is free, as the
/// model does. Connection tracking does not see what XDP has translated for the inside, and only passes on: that has the
/// mark as the source of the link.
#[must_use]
pub fn nft_rules(config: &NatConfig, mark: Option<[u8; 6]>) -> String {
    let mut text = nft_removal();
    let nets = list(config.inside.iter().map(|net| net.trunc().to_string()));
    let mut line = |words: &str| {
        text.push_str(words);
        text.push('\n');
    };
    line(&format!("table ip {NAT_TABLE} {{"));
    line(&format!("\tset inside {{\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\tauto-merge\n{nets}\t}}"));
    line(&format!("\tset users {{\n\t\ttype ipv4_addr\n\t\tsize {MAX_USERS}\n\t\tflags dynamic\n\t}}"));
    let mut chains = String::new();
    let mut sources = String::new();
    match config.pool.as_slice() {
        [] => {}
        [address] => write_source(&mut sources, *address, config, "ip saddr @inside ip daddr != @inside "),
        pool => {
            for (index, address) in pool.iter().enumerate() {
                let _ = writeln!(chains, "\tchain pool{index} {{");
                write_source(&mut chains, *address, config, "");
                chains.push_str("\t}\n");
            }
            let cases = (0..pool.len()).map(|index| format!("{index} : goto pool{index}"));
            let _ = writeln!(
                sources,
                "\t\tip saddr @inside ip daddr != @inside jhash ip saddr mod {} seed {:#x} vmap {{ {} }}",
                pool.len(),
                config.seed.max(1),
                cases.collect::<Vec<_>>().join(", ")
            );
        }
    }
    // A hairpin: the answers must come by this machine.
    if let Some(address) = config.pool.first() {
        write_source(&mut sources, *address, config, "ip saddr @inside ip daddr @inside ct status dnat ");
    }
    line(chains.trim_end_matches('\n'));
    if let Some(mark) = mark.map(|mark| mark.map(|byte| format!("{byte:02x}")).join(":")) {
        line("\tchain translated {\n\t\ttype filter hook prerouting priority raw; policy accept;");
        line(&format!("\t\tether saddr {mark} ip saddr != @inside ip daddr @inside notrack\n\t}}"));
    }
    line("\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;");
    for (protocol, name) in [(TCP, "tcp"), (crate::parse::UDP, "udp")] {
        let forwards = config.forwards.iter().filter(|forward| forward.protocol == protocol);
        let forwards = forwards.map(|forward| {
            let (external, inside) = (forward.external, forward.inside);
            format!("{} . {} : {} . {}", external.ip(), external.port(), inside.ip(), inside.port())
        });
        let forwards: Vec<_> = forwards.collect();
        if !forwards.is_empty() {
            line(&format!("\t\tdnat ip to ip daddr . {name} dport map {{ {} }}", forwards.join(", ")));
        }
    }
    line("\t}\n\tchain postrouting {\n\t\ttype nat hook postrouting priority srcnat; policy accept;");
    line(sources.trim_end_matches('\n'));
    line("\t}\n\tchain bounds {\n\t\ttype filter hook forward priority -10; policy accept;");
    line(&format!(
        "\t\tip saddr @inside ip daddr != @inside ct state new add @users {{ ip saddr ct count over {} }} counter drop",
        config.max_sessions_per_user
    ));
    // The kernel translates only what connection tracking knows. The rest would leave with its inside address.
    line("\t\tip saddr @inside ip daddr != @inside ct state { invalid, untracked } counter drop");
    line("\t}\n}");
    text
}

/// The rules that give a source this address.
fn write_source(text: &mut String, address: Ipv4Addr, config: &NatConfig, condition: &str) {
    let (first, last) = (config.ports.start(), config.ports.end());
    let _ = writeln!(text, "\t\t{condition}meta l4proto {{ tcp, udp }} snat to {address}:{first}-{last}");
    let _ = writeln!(text, "\t\t{condition}snat to {address}");
}

/// The elements of a set.
fn list(elements: impl Iterator<Item = String>) -> String {
    let elements: Vec<_> = elements.collect();
    if elements.is_empty() { String::new() } else { format!("\t\telements = {{ {} }}\n", elements.join(", ")) }
}
