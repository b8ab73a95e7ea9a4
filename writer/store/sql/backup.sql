-- How far a copied file is, for its manifest.

-- :name positions
SELECT f.partition, f.epoch, f.commit_seq, f.lineage, f.archived,
  (SELECT count(*) FROM cursors),
  (SELECT ifnull(sum(applied + duplicates + rejected), 0) FROM cursors)
FROM file f
