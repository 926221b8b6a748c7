mod basics;
mod flow;
mod lease;
mod records;
mod rude;
mod script;
mod stop;
mod trouble;
