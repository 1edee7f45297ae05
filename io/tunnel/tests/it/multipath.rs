//! Tunnels over several paths, on loopback.

use std::io;

use sallyport_tunnel::carrier::association::ask_for_association;
use tokio::io::AsyncReadExt as _;

use crate::lab::*;

#[tokio::test]
async fn an_edge_without_associations_says_so_and_an_older_one_is_understood() {
    let edge = Edge::new();
    let (near, far) = tokio::io::duplex(4_096);
    let tunnels = edge.tunnels.clone();
    tokio::spawn(async move { tunnels.serve_carrier(far, peer()).await });
    let refused = ask_for_association(near).await.unwrap_err();
    assert_eq!(refused.to_string(), "this edge takes no tunnels over several paths");

    let (near, mut far) = tokio::io::duplex(4_096);
    tokio::spawn(async move {
        far.read_exact(&mut [0; 4]).await.unwrap();
        drop(far);
    });
    let refused = ask_for_association(near).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("version"), "{refused}");
}
