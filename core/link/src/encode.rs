// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From a message to a frame.

use core::fmt;

use crate::message::Message;
use crate::{CRC, CRC_SIZE, MAX_FRAME, MAX_PAYLOAD, START};

/// The message takes more than [`MAX_PAYLOAD`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeError;

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the message takes more than {MAX_PAYLOAD} bytes; split it")
    }
}

impl core::error::Error for EncodeError {}

/// Writes the message's frame into `buffer` and returns the part of it that is the frame.
///
/// # Errors
///
/// Refuses a message that is too long; texts up to [`crate::MAX_TEXT`] and bytes up to
/// [`crate::MAX_BYTES`] are not.
pub fn encode<'b>(message: &impl Message, buffer: &'b mut [u8; MAX_FRAME]) -> Result<&'b [u8], EncodeError> {
    let mut payload = [0; MAX_PAYLOAD + CRC_SIZE];
    let (room, _) = payload.split_at_mut(MAX_PAYLOAD);
    let length = postcard::to_slice(message, room).map_err(|_| EncodeError)?.len();
    let (data, rest) = payload.split_at_mut_checked(length).ok_or(EncodeError)?;
    *rest.first_chunk_mut().ok_or(EncodeError)? = CRC.checksum(data).to_le_bytes();
    let checked = payload.get(..length + CRC_SIZE).ok_or(EncodeError)?;

    let [first, start, stuffed @ ..] = buffer;
    (*first, *start) = (0, START);
    let length = cobs::try_encode(checked, stuffed).map_err(|_| EncodeError)?;
    *stuffed.get_mut(length).ok_or(EncodeError)? = 0;
    buffer.get(..length + 3).ok_or(EncodeError)
}

/// Hands the message's frame to `sink`, in one piece.
///
/// # Errors
///
/// Refuses a message that is too long, as [`encode`] does; `sink` is not called then.
pub fn send(message: &impl Message, sink: impl FnOnce(&[u8])) -> Result<(), EncodeError> {
    let mut buffer = [0; MAX_FRAME];
    sink(encode(message, &mut buffer)?);
    Ok(())
}
