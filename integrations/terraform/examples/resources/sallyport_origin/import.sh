terraform import sallyport_origin.eu SOCKET_ID/ORIGIN_ID
