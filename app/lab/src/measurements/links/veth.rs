//! Pairs of veth devices between two namespaces.

use super::Space;
use crate::measurements::frame::RunError;

/// Connects two namespaces by a pair of devices, each with its name and address, such as 10.0.0.1/24. The pair ends
/// with either namespace.
pub(crate) fn connect(near: (&Space, &str, &str), far: (&Space, &str, &str)) -> Result<(), RunError> {
    let ((space, device, address), (peer, peer_device, peer_address)) = (near, far);
    let beyond = peer.path();
    space.ip(&format!("link add {device} type veth peer name {peer_device} netns {beyond}\n"))?;
    for (space, device, address) in [(space, device, address), (peer, peer_device, peer_address)] {
        space.ip(&format!("addr add {address} dev {device}\nlink set {device} up\n"))?;
    }
    Ok(())
}
