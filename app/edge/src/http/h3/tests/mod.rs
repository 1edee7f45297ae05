//! HTTP/3 over loopback: a client of another hand, and one that writes frames by hand.

mod frames;
mod harness;
mod messages;
mod rules;
mod websockets;
