//! The packet that a question is about, on the command line.

use std::net::IpAddr;

use clap::Args;
use sallyport_cli::failure::Failure;
use sallyport_xdp::Question;

use crate::config::protocol;

/// The packet.
#[derive(Debug, Args)]
pub(crate) struct QuestionArgs {
    /// The source
    source: IpAddr,
    /// The destination
    destination: IpAddr,
    /// The protocol: tcp, udp, icmp, or a number
    #[arg(default_value = "icmp", value_parser = protocol)]
    protocol: u8,
    /// The port of the source
    #[arg(default_value_t = 0)]
    source_port: u16,
    /// The port of the destination
    #[arg(default_value_t = 0)]
    destination_port: u16,
    /// The length of the packet with the header of IP
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u16).range(..=3_000))]
    size: u16,
}

impl QuestionArgs {
    /// The question. The two addresses are of one family.
    pub(super) fn question(&self) -> anyhow::Result<Question> {
        if self.source.is_ipv4() != self.destination.is_ipv4() {
            return Err(Failure::usage("the source and the destination are of two families of IP").into());
        }
        Ok(Question {
            source: self.source,
            destination: self.destination,
            protocol: self.protocol,
            ports: (self.source_port, self.destination_port),
            length: self.size,
        })
    }
}
