//! What a poison body becomes on a dead-letter queue (contract §6A).
