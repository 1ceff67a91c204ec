// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sockets of IPv4 (Linux, include/uapi/linux/in.h and include/linux/socket.h).

use super::arch::{call, number};
use super::error::Error;
use super::file::File;

/// `AF_INET`
const INTERNET: u16 = 2;

/// What a socket transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes in order: TCP.
    Stream = 1,
    /// Packets: UDP.
    Datagram = 2,
}

/// `struct sockaddr_in`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Address {
    family: u16,
    port: [u8; 2],
    host: [u8; 4],
    zero: [u8; 8],
}

impl Address {
    /// A port of a host.
    pub const fn new(host: [u8; 4], port: u16) -> Self {
        Address { family: INTERNET, port: port.to_be_bytes(), host, zero: [0; 8] }
    }
}

/// Makes a socket.
pub fn socket(kind: Kind) -> Result<File, Error> {
    // SAFETY: it touches no memory of ours.
    unsafe { call(number::SOCKET, [INTERNET.into(), kind as usize, 0, 0, 0]) }.map(|file| File(file as i32))
}

/// Gives a socket an address of this host.
pub fn bind(socket: File, own: &Address) -> Result<(), Error> {
    with_address(number::BIND, socket, own)
}

/// Connects a socket with an address; of a stream's, waits until it is.
pub fn connect(socket: File, other: &Address) -> Result<(), Error> {
    with_address(number::CONNECT, socket, other)
}

fn with_address(number: usize, socket: File, address: &Address) -> Result<(), Error> {
    let place = core::ptr::from_ref(address).expose_provenance();
    // SAFETY: the kernel reads the address.
    unsafe { call(number, [socket.0 as usize, place, size_of_val(address), 0, 0]) }.map(drop)
}

/// Lets others connect with a socket.
pub fn listen(socket: File) -> Result<(), Error> {
    // SAFETY: it touches no memory of ours.
    unsafe { call(number::LISTEN, [socket.0 as usize, 1, 0, 0, 0]) }.map(drop)
}

/// Waits until somebody connects with a socket; returns the connection.
pub fn accept(socket: File) -> Result<File, Error> {
    // SAFETY: the kernel writes no address where there is no pointer.
    unsafe { call(number::ACCEPT4, [socket.0 as usize, 0, 0, 0, 0]) }.map(|file| File(file as i32))
}
