//! Packets between the device and the carrier.

use std::io;

use sallyport_tun::Device;
use sallyport_tunnel::packets::{PacketHandler, PacketQueue};
use sallyport_wire::{
    NetworkJoined, Violation,
    packets::{MAX_PARCEL_BYTES, Parcels},
};
use tokio::sync::watch;

/// Gives the kernel what comes from the edge.
pub(super) struct DeviceWriter<'a> {
    pub(super) device: &'a Device,
    pub(super) places: watch::Sender<Option<NetworkJoined>>,
}

impl PacketHandler for DeviceWriter<'_> {
    fn packets(&mut self, parcels: Parcels<'_>) -> Result<(), Violation> {
        for parcel in parcels {
            // The kernel counts what it refuses in the statistics of the device.
            if let Err(error) = self.device.send(parcel?) {
                tracing::debug!(%error, "the kernel refuses a packet of the network");
            }
        }
        Ok(())
    }

    fn place(&mut self, place: NetworkJoined) {
        self.places.send_replace(Some(place));
    }
}

/// Takes the kernel's packets until the device is gone. What finds no room in the queue is dropped: TCP slows down.
pub(super) async fn take_packets(device: &Device, queue: &PacketQueue) -> io::Error {
    let mut buffer = vec![0; MAX_PARCEL_BYTES];
    loop {
        match device.recv(&mut buffer).await {
            Ok(bytes) => {
                let is_taken = queue.push(&buffer[..bytes]);
                if !is_taken {
                    tracing::trace!(bytes, "a packet finds no room on the way to the edge");
                }
            }
            Err(error) => return error,
        }
    }
}
