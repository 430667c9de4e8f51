use std::io;

/// Bytes that nobody can guess. At most 256, which the system gives at once or not at all.
pub fn random_bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if count != COUNT {
        return Err(io::Error::other("the system gave too little randomness"));
    }
    Ok(bytes)
}
