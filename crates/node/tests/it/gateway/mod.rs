mod answers;
mod hostile;
mod lane;
mod limits;
mod requests;
mod retries;
mod streams;
mod upstream;
