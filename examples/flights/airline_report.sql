-- Seven local days of each airline; :nominal_date is the day of the instance.
SELECT
  CAST(:nominal_date AS DATE) AS week_ending,
  carrier,
  COUNT(DISTINCT day) AS days,
  SUM(flights) AS flights,
  SUM(cancelled) AS cancelled,
  SUM(mean_departure_delay * (flights - cancelled)) / SUM(flights - cancelled) AS mean_departure_delay
FROM delays
GROUP BY carrier
