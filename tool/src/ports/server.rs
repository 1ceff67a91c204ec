// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sockets of the ports of a machine that runs here.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use super::connection::serve;
use super::says::Says;
use crate::control::names::full_name;
use crate::control::socket;
use crate::failure::{Context, Result};
use crate::session::PortOf;

/// The names of a VM and its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The VM's.
    pub vm: String,
    /// Those of its ports, the first of number 1.
    pub ports: Vec<String>,
}

/// Sockets that are offered; dropping it takes them away.
pub struct Offer {
    folder: PathBuf,
    /// Of each port: its VM's name, its own, and where its socket is.
    pub places: Vec<(PortOf, String, String, PathBuf)>,
}

/// Returns the folder of a machine's ports, by where its control socket is.
fn beside(socket: &Path) -> PathBuf {
    socket.with_extension("ports")
}

/// Removes the sockets of a machine that has ended without taking them away, by where its control socket was.
pub fn abandon(socket: &Path) {
    let _ = fs::remove_dir_all(beside(socket));
}

impl Offer {
    /// Offers the ports of the machine `name`. What programs do there is handed to `sender`.
    pub fn open<E>(
        folder: &Path,
        name: &str,
        vms: &[Named],
        sender: &Sender<E>,
        wrap: fn(Says) -> E,
    ) -> Result<Self>
    where
        E: Send + 'static,
    {
        let folder = beside(&folder.join(format!("{}.sock", full_name(name))));
        let mut offer = Self { folder, places: Vec::new() };
        // One that is there is of a process of the same number that has ended.
        let _ = fs::remove_dir_all(&offer.folder);
        let what = || format!("cannot offer ports at {}", offer.folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(&offer.folder).context(what)?;
        let ids = Arc::new(AtomicU64::new(0));
        let mut places = Vec::new();
        for (named, vm) in vms.iter().zip(0..) {
            for (port, number) in named.ports.iter().zip(1..) {
                let path = offer.folder.join(format!("{}.{port}", named.vm));
                listen(&path, (vm, number), &ids, sender.clone(), wrap)?;
                places.push(((vm, number), named.vm.clone(), port.clone(), path));
            }
        }
        offer.places = places;
        Ok(offer)
    }
}

/// Listens at one socket.
fn listen<E: Send + 'static>(
    path: &Path,
    of: PortOf,
    ids: &Arc<AtomicU64>,
    sender: Sender<E>,
    wrap: fn(Says) -> E,
) -> Result<()> {
    let listener = socket::listen(path, || format!("cannot offer a port at {}", path.display()))?;
    let ids = Arc::clone(ids);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(std::result::Result::ok) {
            serve(stream, of, ids.fetch_add(1, Ordering::Relaxed), sender.clone(), wrap);
        }
    });
    Ok(())
}

impl Drop for Offer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
